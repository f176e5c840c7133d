package council

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"

	"domicile/regions/testenv"
)

func TestRA1_StoreKeepsWhatItWasGiven(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(dir, time.Second, func() {})
	if err != nil {
		t.Fatal(err)
	}
	var entries []*raft.Log
	for i := uint64(3); i < 9; i++ {
		entries = append(entries, &raft.Log{Index: i, Term: 2, Type: raft.LogCommand, Data: bytes.Repeat([]byte{byte(i)}, int(i)), AppendedAt: time.Unix(0, int64(i))})
	}
	entries[0].Extensions = []byte("ext")
	if err := s.StoreLogs(entries); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(3, 4); err != nil {
		t.Fatal(err)
	}
	if err := s.SetUint64([]byte("term"), 7); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if s, err = openStore(dir, time.Second, func() {}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.close() }()
	first, _ := s.FirstIndex()
	last, _ := s.LastIndex()
	term, _ := s.GetUint64([]byte("term"))
	none, err := s.GetUint64([]byte("none"))
	if first != 5 || last != 8 || term != 7 || none != 0 || err != nil {
		t.Fatal(first, last, term, none, err)
	}
	var got raft.Log
	if err := s.GetLog(6, &got); err != nil || !bytes.Equal(got.Data, entries[3].Data) || got.Term != 2 || !got.AppendedAt.Equal(time.Unix(0, 6)) {
		t.Fatalf("%+v %v", got, err)
	}
	if err := s.GetLog(3, &got); err != raft.ErrLogNotFound {
		t.Fatal(err)
	}
	err = s.db.Update(func(tx *bolt.Tx) error {
		data := bytes.Clone(tx.Bucket(logBucket()).Get(indexKey(6)))
		data[len(data)/2] ^= 1
		return tx.Bucket(logBucket()).Put(indexKey(6), data)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.verify(); err == nil {
		t.Fatal("nothing said that an entry is damaged")
	}
	// Nobody is given it: whoever asks waits until the voter closes.
	asked := make(chan error, 1)
	go func() { asked <- s.GetLog(6, &got) }()
	for s.failure() == nil {
		select {
		case err := <-asked:
			t.Fatalf("answered: %+v %v", got, err)
		case <-time.After(time.Millisecond):
		}
	}
	s.release()
	if err := <-asked; err != nil || got.Type != raft.LogNoop || len(got.Data) > 0 {
		t.Fatalf("%+v %v", got, err)
	}
}

// TestRA1_VoteWaitsOutAFullDisk: a vote that does not fit is neither given nor the end of
// the process; it is kept once there is room.
func TestRA1_VoteWaitsOutAFullDisk(t *testing.T) {
	testenv.Root(t, "mount")
	disk := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk).CombinedOutput(); err != nil {
		testenv.Missing(t, "no small disk here: ", err, string(out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", disk).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	s, err := openStore(disk, 10*time.Millisecond, func() { t.Error("a full disk is not a broken one") })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.close() }()
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	for i := uint64(1); s.StoreLog(&raft.Log{Index: i, Data: make([]byte, 4<<10)}) == nil; i++ {
	}
	kept := make(chan error, 1)
	go func() { kept <- s.Set([]byte("vote"), make([]byte, 64<<10)) }()
	if !full(s.failure()) {
		t.Fatal(s.failure())
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := <-kept; err != nil {
		t.Fatal(err)
	}
	if vote, err := s.Get([]byte("vote")); err != nil || len(vote) != 64<<10 || s.failure() != nil {
		t.Fatal(len(vote), err, s.failure())
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(encodeEntry(&raft.Log{Index: 1, Term: 2, Data: []byte("x"), Extensions: []byte("y")}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e raft.Log
		if decodeEntry(data, &e) == nil && !bytes.Equal(encodeEntry(&e), data) && len(e.Data)+len(e.Extensions) > len(data) {
			t.Fatalf("%+v", e)
		}
	})
}
