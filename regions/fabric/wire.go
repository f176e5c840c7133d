package fabric

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"
)

// errWireClosed: the in-process connection is gone; whatever was in flight on it may
// or may not have been taken.
var errWireClosed = errors.New("connection to the embedded broker closed")

// wire is a minimal client of the broker's protocol on an in-process connection. It
// exists because the writer needs raw header blocks, batch replies and the order of
// its frames in its own hands.
type wire struct {
	conn   net.Conn
	prefix string         // of reply subjects, with the final dot
	next   *atomic.Uint64 // of the fabric: the broker knows a batch by its token alone, on whatever wire
	out    chan []byte
	pong   chan struct{}
	closed chan struct{}
	once   sync.Once
	wg     sync.WaitGroup

	mu       sync.Mutex
	handlers map[string]func(frame)
}

// repliesSID is the one subscription that lives as long as the wire. No token is like it.
const repliesSID = "-"

// frame is one message the broker sent. Its slices belong to the receiver.
type frame struct {
	header, body []byte
	reply        string // "" unless the broker asks for an answer, or names a place in it
}

// status is the code of a message that carries only a status, such as "503".
func (f frame) status() string {
	line, _, _ := bytes.Cut(f.header, []byte("\r\n"))
	s := strings.TrimPrefix(string(line), "NATS/1.0")
	s, _, _ = strings.Cut(strings.TrimSpace(s), " ")
	return s
}

func dialWire(conn net.Conn, user, password string, wait time.Duration, next *atomic.Uint64) (*wire, error) {
	w := &wire{conn: conn, next: next, prefix: "_D." + nuid.Next() + ".", out: make(chan []byte, 4),
		pong: make(chan struct{}, 1), closed: make(chan struct{}), handlers: map[string]func(frame){}}
	hello, err := json.Marshal(map[string]any{"verbose": false, "pedantic": false, "headers": true,
		"no_responders": true, "user": user, "pass": password, "protocol": 1, "lang": "go", "name": "fabric"})
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(wait))
	r := bufio.NewReaderSize(conn, 64<<10)
	if _, err := r.ReadSlice('\n'); err != nil { // INFO
		return nil, fmt.Errorf("greeting of the embedded broker: %w", err)
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s\r\nSUB %s> %s\r\nPING\r\n", hello, w.prefix, repliesSID); err != nil {
		return nil, fmt.Errorf("connect to the embedded broker: %w", err)
	}
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return nil, fmt.Errorf("connect to the embedded broker: %w", err)
		}
		if bytes.HasPrefix(line, []byte("PONG")) {
			break
		}
		if bytes.HasPrefix(line, []byte("-ERR")) {
			return nil, fmt.Errorf("connect to the embedded broker: %s", bytes.TrimSpace(line))
		}
	}
	_ = conn.SetDeadline(time.Time{})
	w.wg.Add(2)
	go w.readLoop(r)
	go w.writeLoop()
	return w, nil
}

// close ends the connection and waits for its goroutines. Handlers are never called
// after it.
func (w *wire) close() {
	w.shut()
	w.wg.Wait()
}

func (w *wire) shut() {
	w.once.Do(func() {
		close(w.closed)
		_ = w.conn.Close()
	})
}

// handle registers fn for replies whose first token after the prefix is token. fn
// runs on the read loop and must not block.
func (w *wire) handle(fn func(frame)) (token string) {
	token = strconv.FormatUint(w.next.Add(1), 36)
	w.mu.Lock()
	w.handlers[token] = fn
	w.mu.Unlock()
	return token
}

func (w *wire) unhandle(token string) {
	w.mu.Lock()
	delete(w.handlers, token)
	w.mu.Unlock()
}

// send queues whole protocol frames. The buffer belongs to the wire from here on.
func (w *wire) send(ctx context.Context, b []byte) error {
	select {
	case w.out <- b:
		return nil
	case <-w.closed:
		return errWireClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// request sends one message and hands every reply to on until on says it is done. on
// is not running, and never called again, once request has returned.
func (w *wire) request(ctx context.Context, subject string, header, body []byte, on func(frame) (done bool)) error {
	return w.exchange(ctx, on, func(token string) []byte { return appendPub(nil, subject, w.prefix+token, header, body) })
}

// requestDeliveries is request for messages of a consumer. Those carry the subject they
// were stored under; only the subscription tells whose they are.
func (w *wire) requestDeliveries(ctx context.Context, subject string, body []byte, on func(frame) (done bool)) error {
	var sid string
	err := w.exchange(ctx, on, func(token string) []byte {
		sid = token
		inbox := "_S" + w.prefix[2:] + token
		return appendPub(fmt.Appendf(nil, "SUB %s %s\r\n", inbox, sid), subject, inbox, nil, body)
	})
	return errors.Join(err, w.send(ctx, fmt.Appendf(nil, "UNSUB %s\r\n", sid)))
}

// exchange sends what frames makes for a token of its own, and hands every reply to on.
func (w *wire) exchange(ctx context.Context, on func(frame) (done bool), frames func(token string) []byte) error {
	done := make(chan struct{})
	var mu sync.Mutex
	over := false
	token := w.handle(func(f frame) {
		mu.Lock()
		defer mu.Unlock()
		if !over && on(f) {
			over = true
			close(done)
		}
	})
	defer func() {
		w.unhandle(token)
		mu.Lock()
		over = true
		mu.Unlock()
	}()
	if err := w.send(ctx, frames(token)); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-w.closed:
		return errWireClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// appendPub appends a PUB or, with a header block, an HPUB frame.
func appendPub(b []byte, subject, reply string, header, body []byte) []byte {
	if len(header) == 0 {
		b = append(b, "PUB "...)
	} else {
		b = append(b, "HPUB "...)
	}
	b = append(b, subject...)
	b = append(b, ' ')
	b = append(b, reply...)
	b = append(b, ' ')
	if len(header) != 0 {
		b = strconv.AppendInt(b, int64(len(header)), 10)
		b = append(b, ' ')
	}
	b = strconv.AppendInt(b, int64(len(header)+len(body)), 10)
	b = append(b, "\r\n"...)
	b = append(b, header...)
	b = append(b, body...)
	return append(b, "\r\n"...)
}

// writeLoop is apart from readLoop so that answering a ping can never wait for the
// broker to read while the broker waits for us to read.
func (w *wire) writeLoop() {
	defer w.wg.Done()
	for {
		var b []byte
		select {
		case b = <-w.out:
		case <-w.pong:
			b = []byte("PONG\r\n")
		case <-w.closed:
			return
		}
		if _, err := w.conn.Write(b); err != nil {
			w.shut()
			return
		}
	}
}

func (w *wire) readLoop(r *bufio.Reader) {
	defer w.wg.Done()
	defer w.shut()
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		switch {
		case bytes.HasPrefix(line, []byte("MSG ")), bytes.HasPrefix(line, []byte("HMSG ")):
			if err := w.readMessage(r, line); err != nil {
				return
			}
		case bytes.HasPrefix(line, []byte("PING")):
			select {
			case w.pong <- struct{}{}:
			default:
			}
		case bytes.HasPrefix(line, []byte("-ERR")):
			return
		}
	}
}

func (w *wire) readMessage(r *bufio.Reader, line []byte) error {
	withHeader := line[0] == 'H'
	fields := bytes.Fields(line)
	// MSG subject sid [reply] size, HMSG subject sid [reply] headerSize size
	if len(fields) < 4 {
		return errors.New("short message line")
	}
	token, _, _ := strings.Cut(strings.TrimPrefix(string(fields[1]), w.prefix), ".")
	if sid := string(fields[2]); sid != repliesSID {
		token = sid
	}
	total, err := strconv.Atoi(string(fields[len(fields)-1]))
	if err != nil || total < 0 {
		return errors.New("bad message size")
	}
	head := 0
	if withHeader {
		if head, err = strconv.Atoi(string(fields[len(fields)-2])); err != nil || head < 0 || head > total {
			return errors.New("bad header size")
		}
	}
	reply := ""
	if n := len(fields) - 2; withHeader && n == 4 || !withHeader && n == 3 {
		reply = string(fields[3])
	}
	b := make([]byte, total+2)
	for n := 0; n < len(b); {
		k, err := r.Read(b[n:])
		if err != nil {
			return err
		}
		n += k
	}
	w.mu.Lock()
	fn := w.handlers[token]
	w.mu.Unlock()
	if fn != nil {
		fn(frame{header: b[:head:head], body: b[head:total:total], reply: reply})
	}
	return nil
}
