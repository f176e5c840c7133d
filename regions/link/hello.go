package link

import (
	"fmt"

	"domicile/api"
	"domicile/regions"
)

// met is what is known of the other regions when a hello is judged.
type met struct {
	owner   string         // the region that its fabric is known to be of; "": of none yet
	claimed string         // another region that is connected, and says that it has this fabric
	present *regions.Hello // of the same region while it is connected; nil: it is not
}

// of names the gateway of a hello, if its region has several.
func of(h *regions.Hello) string {
	if h.Gateway == "" {
		return ""
	}
	return ", gateway " + h.Gateway
}

// checkHello decides whether a peer is who it should be and speaks what we speak. The
// name in the certificate has been verified before and is the one that counts.
func checkHello(ours, theirs regions.Hello, certified string, m met) error {
	refuse := func(code api.Code, field, value, hint string) error {
		return &api.Error{Code: code, Op: "hello", Region: certified, Field: field, Value: value, Hint: hint}
	}
	if ours.WireVersion < theirs.OldestWire || theirs.WireVersion < ours.OldestWire {
		return refuse(api.VersionMismatch, "wire_version",
			fmt.Sprintf("%s speaks %d to %d, %s speaks %d to %d", theirs.Region, theirs.OldestWire, theirs.WireVersion, ours.Region, ours.OldestWire, ours.WireVersion),
			"upgrade the older of the two: "+ours.Region+" runs "+ours.Version+", "+theirs.Region+" runs "+theirs.Version)
	}
	switch {
	case theirs.Federation != ours.Federation:
		return refuse(api.ManifestMismatch, "federation", theirs.Federation, "this is federation "+ours.Federation+": two federations do not link")
	case theirs.Region != certified:
		return refuse(api.PermissionDenied, "region", theirs.Region, "its certificate names region "+certified+": give the node its own certificate")
	case theirs.Region == ours.Region:
		return refuse(api.PermissionDenied, "region", theirs.Region, "that is this region: correct the address in the manifest")
	case theirs.FabricID == "" || theirs.BootID == "":
		return refuse(api.BadRequest, "fabric_id", theirs.FabricID, "a region says its fabric and its run")
	case theirs.FabricID == ours.FabricID:
		return refuse(api.PermissionDenied, "fabric_id", theirs.FabricID, "that is the fabric of "+ours.Region+": a data folder was copied; create the region's own")
	}
	other := m.owner
	if other == "" {
		other = m.claimed
	}
	if other != "" && other != certified {
		return refuse(api.PermissionDenied, "fabric_id", theirs.FabricID, "that is the fabric of "+other+": a data folder was copied; create the region's own. "+
			"If "+other+" said it first and is wrong, take it out of peers.json in this node's data folder, and start it with "+other+" cut off")
	}
	if p := m.present; p != nil && p.FabricID != theirs.FabricID {
		return refuse(api.PermissionDenied, "fabric_id", theirs.FabricID, "region "+certified+" is connected with fabric "+p.FabricID+": two fabrics carry one name; stop one of them")
	}
	if p := m.present; p != nil && p.BootID != theirs.BootID {
		return refuse(api.PermissionDenied, "boot_id", theirs.BootID, "another run of region "+certified+" is still connected"+of(p)+": if it was restarted, or that gateway is gone, this passes by itself, else stop one of the two")
	}
	return nil
}
