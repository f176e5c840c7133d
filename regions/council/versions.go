package council

import (
	"encoding/binary"
	"fmt"

	"domicile/api"
)

// readByAll refuses a command that a voter could not read: it would stand still, and all that
// was decided later would pass it by. What the voters read is known by their greetings, also
// of those that are out of reach now.
func (v *Voter) readByAll(data []byte) error {
	if data[0] == 1 {
		return nil
	}
	for _, seat := range v.seats() {
		region, _ := address(seat).parts()
		if seat == v.mark.address() {
			continue // whoever writes it reads it
		}
		switch reads, err := v.store.GetUint64(readsKey(seat)); {
		case err != nil:
			return err
		case reads == 0:
			return &api.Error{Code: api.NotReady, Op: "place log", Region: region, Field: "version", Hint: fmt.Sprintf("its voter was never heard, so nobody knows whether it reads a command of version %d", data[0])}
		case reads < uint64(data[0]):
			return unread(region, byte(reads), data[0])
		}
	}
	return nil
}

// unread names the voter that is too old for a command.
func unread(region string, reads, needs byte) error {
	return &api.Error{Code: api.VersionMismatch, Op: "place log", Region: region, Field: "version", Value: fmt.Sprint(reads),
		Hint: fmt.Sprintf("its voter reads commands up to version %d, and version %d is needed: start the newer program there first, or take its vote away if it is lost: domicile control voters remove %s", reads, needs, region)}
}

// noteReads keeps the latest version of commands that a voter reads, over a start: whoever
// is lost just then must not be what keeps the others from deciding.
func (v *Voter) noteReads(seat string, reads byte) {
	v.noting.Lock()
	defer v.noting.Unlock()
	known, err := v.store.GetUint64(readsKey(seat))
	if err == nil && known != uint64(reads) {
		err = v.store.put(readsKey(seat), binary.BigEndian.AppendUint64(nil, uint64(reads)))
	}
	if err != nil {
		v.cfg.Log.Warn("what version of commands a voter reads is not kept", "voter", seat, "err", err)
	}
}

func readsKey(seat string) []byte { return []byte("reads/" + seat) }
