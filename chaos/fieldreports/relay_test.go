package fieldreports

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"domicile/api"
	"domicile/api/client"
	"domicile/chaos/lab"
)

// This test's binary is also the process that gets killed: by these variables.
const (
	partKey  = "DOMICILE_TEST_PART" // producer or relay
	doorKey  = "DOMICILE_TEST_DOOR"
	dirKey   = "DOMICILE_TEST_DIR"
	crashKey = "DOMICILE_TEST_CRASH" // row/moment at which a relay kills itself
)

// act is the process's part; it ends by itself if nobody kills it.
func act(part string) error {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	c, err := client.New(client.Config{Addresses: []string{os.Getenv(doorKey)}})
	if err != nil {
		return err
	}
	defer c.Close()
	if part == "producer" {
		return produce(ctx, c, os.Stdout)
	}
	return relay(ctx, c, os.Getenv(dirKey), os.Getenv(crashKey))
}

// produce publishes without end, many at a time, and writes the id of each acknowledged record.
func produce(ctx context.Context, c *client.Client, out io.Writer) error {
	p := c.NewPublisher(client.Window{Records: 256})
	for n := 0; ctx.Err() == nil; n++ {
		r := record(fmt.Sprintf("made-%d", n), "orders", "us", []byte("x"))
		p.Publish(ctx, r, func(_ api.Ack, err error) {
			if err == nil {
				fmt.Fprintln(out, r.ID)
			}
		})
	}
	return ctx.Err()
}

// again starts this binary in a part, against a region's door.
func (d *drill) again(part, region string, more ...string) *exec.Cmd {
	cmd := exec.CommandContext(d.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), append([]string{partKey + "=" + part, doorKey + "=" + d.lab.Region(region).Node().Door()}, more...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// found counts the records of a region's own orders that a reader from the oldest on gets, by id.
func (d *drill) found(region string) (order []string, times map[string]int) {
	d.Helper()
	times = map[string]int{}
	d.must(d.read(region, region, "", 0, func(b batch) error {
		for _, r := range b.GetRecords() {
			id := r.GetRecord().GetId()
			order, times[id] = append(order, id), times[id]+1
		}
		return nil
	}))
	return order, times
}

// TestRA1_D2_AKilledProducersAckedRecordsAreThere: a process that publishes under load is
// killed. Nothing that was acknowledged to it is missing, and nothing is there twice.
func TestRA1_D2_AKilledProducersAckedRecordsAreThere(t *testing.T) {
	d := start(t, lab.Options{})
	cmd := d.again("producer", "us-east")
	out, err := cmd.StdoutPipe()
	d.must(err)
	d.must(cmd.Start())
	var acked []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if acked = append(acked, lines.Text()); len(acked) == 500 {
			d.must(cmd.Process.Kill())
		}
	}
	if err := cmd.Wait(); err == nil || len(acked) < 500 {
		t.Fatalf("it ended by itself after %d acks: %v", len(acked), err)
	}
	all, times := d.found("us-east")
	for _, id := range acked {
		if times[id] != 1 {
			t.Errorf("%s was acknowledged and is there %d times", id, times[id])
		}
	}
	if len(times) != len(all) {
		t.Errorf("%d records under %d ids", len(all), len(times))
	}
	t.Logf("%d acknowledged before the end, %d stored", len(acked), len(all))
}

// The moments between a relay's steps.
const (
	unsent  = "unsent"  // before it publishes a row
	flight  = "flight"  // while the record is on its way
	sent    = "sent"    // between the ack and the mark
	marked  = "marked"  // between the mark and the next row
	outbox  = "outbox"  // the file of rows
	marks   = "marks"   // the file of rows that are done
	rowsOut = 8         // of an outbox
	twice   = "again: " // what a relay says of a record that was there already
)

// relay publishes each row of an outbox that is not marked, waits for its ack, and marks it.
// The row is the event id.
func relay(ctx context.Context, c *client.Client, dir, crash string) error {
	rows, err := os.ReadFile(filepath.Join(dir, outbox))
	if err != nil {
		return err
	}
	done, err := os.ReadFile(filepath.Join(dir, marks))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, marks), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	at := func(row, moment string) {
		if crash == row+"/"+moment {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			<-ctx.Done()
		}
	}
	for _, row := range strings.Fields(string(rows)) {
		if slices.Contains(strings.Fields(string(done)), row) {
			continue
		}
		r := record(row, "orders", "us", []byte(row))
		at(row, unsent)
		if crash == row+"/"+flight {
			c.NewPublisher(client.Window{}).Publish(ctx, r, func(api.Ack, error) {})
		}
		at(row, flight)
		ack, err := c.Publish(ctx, &r)
		if err != nil {
			return err
		}
		if ack.Duplicate {
			fmt.Println(twice + row)
		}
		at(row, sent)
		if _, err := fmt.Fprintln(file, row); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
		at(row, marked)
	}
	return nil
}

// TestRD1_Decision1_Decision4_ARelayKilledAtEachStepLeavesOneRecordEach: a relay dies before it
// publishes a row of its outbox, with the record on its way, between the ack and the mark, and
// behind the mark. No row lacks its record, and the log has it once: whoever reads it has one
// effect to make.
func TestRD1_Decision1_Decision4_ARelayKilledAtEachStepLeavesOneRecordEach(t *testing.T) {
	d := start(t, lab.Options{})
	dir := t.TempDir()
	var rows []string
	for n := range rowsOut {
		rows = append(rows, fmt.Sprintf("row-%d", n))
	}
	d.must(os.WriteFile(filepath.Join(dir, outbox), []byte(strings.Join(rows, "\n")), 0o600))
	var said strings.Builder
	for _, crash := range []string{"row-1/" + unsent, "row-2/" + flight, "row-4/" + sent, "row-5/" + sent, "row-6/" + marked, ""} {
		cmd := d.again("relay", "us-east", dirKey+"="+dir, crashKey+"="+crash)
		out, err := cmd.Output()
		said.Write(out)
		if killed := cmd.ProcessState != nil && !cmd.ProcessState.Exited(); killed != (crash != "") {
			t.Fatalf("crash at %q: %v", crash, err)
		}
	}
	order, _ := d.found("us-east")
	if !slices.Equal(order, rows) {
		t.Errorf("the log has %v", order)
	}
	for _, row := range []string{"row-4", "row-5"} {
		if !strings.Contains(said.String(), twice+row+"\n") {
			t.Errorf("%s was not sent again: %q", row, said.String())
		}
	}
}
