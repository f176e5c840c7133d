package council

// BreakDisk takes the voter's store away under it.
func (v *Voter) BreakDisk() { _ = v.store.db.Close() }
