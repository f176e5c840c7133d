package field

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// wallClock is the wall clock of one process. Programs read the time from a page that
// the kernel maps into each of them. In the process of a node that page is changed
// before its first instruction: the wall clock it gives is the kernel's and an offset,
// which can be written at any time, also while the process runs. All that is in the
// process sees it, libraries too; the monotonic clock stays as it is.
type wallClock struct {
	pid    int
	offset uint64 // address of the offset, seconds in a signed 64-bit number
}

// clocksCanStep says why the clocks of processes can't be changed here; nil: they can.
func clocksCanStep() error {
	if runtime.GOARCH != "amd64" {
		return errors.New("clocks of processes can be changed on amd64 only")
	}
	return nil
}

const (
	sysinfoEHDR = 33       // of the auxiliary vector: where the kernel's page is
	pageBytes   = 16 << 10 // more than it has
	symbolBytes = 24       // of an entry of its symbol table; the address stands at 8
	reader      = "__vdso_clock_gettime"
	unused      = "__vdso_gettimeofday" // Go does not call it: its place is taken
)

// takeClock changes the page of a traced process that stands before its first
// instruction, sets its clock wrong by skew and lets it go. The caller's goroutine is the tracer: it must be locked
// to the thread that started the process.
func takeClock(pid int, skew time.Duration) (w *wallClock, err error) {
	defer func() { err = errors.Join(err, syscall.PtraceDetach(pid)) }()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || !status.Stopped() {
		return nil, errors.Join(fmt.Errorf("the process did not stop before it began: %v", status), err)
	}
	base, err := pageOf(pid)
	if err != nil {
		return nil, err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	page := make([]byte, pageBytes)
	n, err := memory.ReadAt(page, int64(base)) // as much as there is
	if n == 0 {
		return nil, err
	}
	code, at, entry, err := redirect(page[:n])
	if err != nil {
		return nil, err
	}
	_, err = memory.WriteAt(code, int64(base+at))
	_, err2 := memory.WriteAt(binary.LittleEndian.AppendUint64(nil, at), int64(base+entry))
	w = &wallClock{pid, base + at + uint64(len(code)) - 8}
	return w, errors.Join(err, err2, w.set(skew))
}

// pageOf is the address of the kernel's page in a process.
func pageOf(pid int) (uint64, error) {
	vector, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, err
	}
	for ; len(vector) >= 16; vector = vector[16:] {
		if binary.LittleEndian.Uint64(vector) == sysinfoEHDR {
			return binary.LittleEndian.Uint64(vector[8:]), nil
		}
	}
	return 0, errors.New("the kernel gives processes no clock of their own")
}

// redirect makes what is written into the page: code, its place, and the place of the
// address by which programs find the function that reads clocks.
func redirect(page []byte) (code []byte, at, entry uint64, err error) {
	file, err := elf.NewFile(bytes.NewReader(page))
	if err != nil {
		return nil, 0, 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, 0, 0, err
	}
	var read, room *elf.Symbol
	for i := range symbols {
		switch symbols[i].Name {
		case reader:
			read, entry = &symbols[i], file.Section(".dynsym").Addr+uint64(i+1)*symbolBytes+8 // the table's first entry is not listed
		case unused:
			room = &symbols[i]
		}
	}
	if read == nil || room == nil {
		return nil, 0, 0, errors.New("the kernel's page has no clock that is known")
	}
	code = stepped(read.Value - room.Value)
	if uint64(len(code)) > room.Size {
		return nil, 0, 0, errors.New("the kernel's page has too little room")
	}
	return code, room.Value, entry, nil
}

// stepped is a function like the one that lies original bytes ahead of it, which adds
// to the wall clock the seconds that stand in its last eight bytes.
func stepped(original uint64) []byte {
	code := []byte{
		0x57,                   // push rdi: which clock
		0x56,                   // push rsi: where the time goes
		0x48, 0x83, 0xEC, 0x08, // sub rsp, 8
		0xE8, 0, 0, 0, 0, // call original
		0x48, 0x83, 0xC4, 0x08, // add rsp, 8
		0x5E,       // pop rsi
		0x5F,       // pop rdi
		0x85, 0xFF, // test edi, edi: CLOCK_REALTIME is 0
		0x75, 0x0A, // jne to the end
		0x48, 0x8B, 0x15, 0, 0, 0, 0, // mov rdx, the seconds
		0x48, 0x01, 0x16, // add [rsi], rdx
		0xC3, // ret
	}
	const afterCall, afterLoad = 11, 28
	for len(code)%8 != 0 {
		code = append(code, 0xCC)
	}
	binary.LittleEndian.PutUint32(code[afterCall-4:], uint32(original-afterCall))
	binary.LittleEndian.PutUint32(code[afterLoad-4:], uint32(len(code)-afterLoad))
	return append(code, make([]byte, 8)...)
}

// set makes the clock wrong by d, whole seconds.
func (w *wallClock) set(d time.Duration) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", w.pid), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	_, err = memory.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(int64(d/time.Second))), int64(w.offset))
	return err
}
