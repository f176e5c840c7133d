package node

import "domicile/regions"

// hello is what this node tells a peer about itself.
func (n *Node) hello() regions.Hello {
	federation := n.federation.Snapshot()
	h := regions.Hello{
		Federation: federation.Name(), Region: n.cfg.Region, Gateway: n.cfg.Node, FabricID: n.fabric.ID(), BootID: n.bootID, Version: n.seams.Version,
		WireVersion: regions.WireVersion, OldestWire: regions.OldestWireVersion,
		ManifestDigest: federation.Digest(), TopicDigests: map[string]string{}, TopicFields: map[string]map[string]string{},
		CertificateEnds: n.identity.Ends(),
	}
	if g := n.gate.Current(); g != nil {
		h.PolicySerial, h.PolicyRevision = g.Serial, g.Revision
	}
	kept, _ := n.policies.told()
	h.SignedPolicy, h.PolicySigners, h.FencedPolicy = kept.serial, kept.signers, n.confirmed()
	for _, name := range federation.Topics() {
		t, _ := federation.Topic(name)
		h.TopicDigests[name] = federation.TopicDigest(name)
		h.TopicFields[name] = t.Fields()
	}
	if n.placer != nil {
		h.Incarnations = n.placer.Homes()
	}
	return h
}
