package council

import (
	"bytes"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
)

func TestRA1_StoreKeepsWhatItWasGiven(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(dir)
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
	if s, err = openStore(dir); err != nil {
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
	if err := s.GetLog(6, &got); err == nil {
		t.Fatal("a damaged entry was read")
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
