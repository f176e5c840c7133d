package council

import (
	"bytes"
	"testing"
)

func FuzzReadFrame(f *testing.F) {
	var good bytes.Buffer
	if err := writeFrame(&good, hello{For: asking, Authority: "A", Generation: 1}, maxHello); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var h hello
		if err := readFrame(bytes.NewReader(data), &h, maxHello); err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeFrame(&again, h, maxHello); err != nil {
			t.Fatal(err)
		}
		var same hello
		if err := readFrame(&again, &same, maxHello); err != nil || same.For != h.For || same.After != h.After {
			t.Fatalf("%+v %+v %v", h, same, err)
		}
	})
}

func TestR14e_FramesAreBounded(t *testing.T) {
	if err := writeFrame(&bytes.Buffer{}, bytes.Repeat([]byte("x"), maxHello), maxHello); err == nil {
		t.Fatal("a frame beyond the bound was written")
	}
	var h hello
	if err := readFrame(bytes.NewReader([]byte{0, 1, 0, 0, '{'}), &h, maxHello); err == nil {
		t.Fatal("a frame beyond the bound was read")
	}
}
