package simulate

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"domicile/api"
	"domicile/chaos/drill"
	"domicile/chaos/drill/history"
	"domicile/regions"
)

// Options say what is simulated. All of it is required but For, Rate, Say, Within and Still.
type Options struct {
	ID         string
	Plan       drill.Plan
	Digest     string        // of the plan's file
	Dir        string        // of this drill, made already; its history goes there
	Federation string        // path of federation.yaml
	Policies   string        // folder of the policy
	For        time.Duration // that the cut lasts; 0: as the plan says
	Rate       int           // the most records a second of each producer; 0: 1
	Controller string        // this program and its version
	At         time.Time     // now, by the clock on the wall
	Self       Self
	Say        func(line string) // told of each step and how far virtual time is; nil: nobody is
	Within     time.Duration     // real time that it may take; 0: an hour
	Still      time.Duration     // real time in which virtual time has to go on; 0: five minutes
}

// Self is this program in a process of its own, whose main calls Be with the path of a job.
type Self func(job string) *exec.Cmd

// In a simulation's folder, beside its history.
const (
	logFile  = "nodes.log"       // what nodes warned of
	dumpFile = "simulation.dump" // what the process said when it ended badly, its goroutines among it
)

// Defaults, and how long a process that was told to end may take to say where it was.
const (
	usualWithin = time.Hour
	usualStill  = 5 * time.Minute
	usualRate   = 1
	dying       = 10 * time.Second
	progress    = 10 * time.Second // between two words on how far it is, at least
)

// Run simulates a drill and waits for its end. An error comes with the outcome Refused where
// nothing was cut, and without an outcome where the simulation came to no end: by its
// deadlines, or because its process ended. Nothing is left behind but what is in o.Dir.
func Run(ctx context.Context, o Options) (drill.Result, error) {
	refused := drill.Result{Outcome: history.Refused}
	j, err := o.job()
	if err != nil {
		return refused, err
	}
	if j.Root, err = os.MkdirTemp("", "domicile-simulation-"); err != nil {
		return refused, fmt.Errorf("make the simulation's folder: %w", err)
	}
	result, err := o.host(ctx, j)
	return result, errors.Join(err, os.RemoveAll(j.Root))
}

// job resolves everything that can be wrong before a process is started.
func (o *Options) job() (*job, error) {
	text, err := os.ReadFile(o.Federation)
	if err != nil {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "read manifest", Field: "federation", Value: o.Federation, Err: err, Hint: "name the federation.yaml that the regions run with"}
	}
	j := &job{ID: o.ID, Digest: o.Digest, Controller: o.Controller, Plan: o.Plan}
	if j.Manifest, j.Simulated, err = model(o.Federation, text); err != nil {
		return nil, err
	}
	j.Simulated.At = o.At.UTC().Round(0)
	j.Simulated.Differs = append(j.Simulated.Differs, fit(&j.Plan, o.For, cmp.Or(o.Rate, usualRate))...)
	if err := j.Plan.Check(); err != nil {
		return nil, err
	}
	if most := longest - j.Plan.Lease; j.Plan.For > most {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "simulate drill", Field: "for", Value: j.Plan.For.String(), Hint: "at most " + most.String() + " with this lease"}
	}
	if j.Dir, err = filepath.Abs(o.Dir); err == nil {
		j.Policies, err = filepath.Abs(o.Policies)
	}
	if err == nil {
		_, err = os.Stat(j.Policies)
	}
	if err != nil {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "simulate drill", Field: "policies", Value: o.Policies, Err: err, Hint: "name the folder of the policy that is in force"}
	}
	return j, nil
}

// host starts the process, listens to it and sees to it that it ends.
func (o *Options) host(ctx context.Context, j *job) (drill.Result, error) {
	none := drill.Result{Outcome: history.Refused}
	text, err := json.Marshal(j)
	path := filepath.Join(j.Root, "job.json")
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return none, fmt.Errorf("write the simulation's job: %w", err)
	}
	dump, err := os.OpenFile(filepath.Join(j.Dir, dumpFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return none, &api.Error{Code: api.ConfigInvalid, Op: "simulate drill", Field: "dir", Value: j.Dir, Err: err, Hint: "give a folder that can be written"}
	}
	defer dump.Close()
	cmd := o.Self(path)
	cmd.Stderr = dump
	alive, err := cmd.StdinPipe() // ends with this process, however that ends
	if err != nil {
		return none, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return none, err
	}
	if err := cmd.Start(); err != nil {
		return none, fmt.Errorf("start the simulation's process: %w", err)
	}
	words := make(chan word)
	go listen(out, words) // ends with the process
	last, why := o.watch(ctx, words)
	if why != nil {
		end(cmd, words, ctx.Err() == nil)
	}
	ended := cmd.Wait()
	_ = alive.Close()
	switch {
	case ctx.Err() != nil:
		return drill.Result{}, errors.Join(why, os.Remove(dump.Name()))
	case why != nil:
		return drill.Result{}, why
	case last.Result == nil:
		return drill.Result{}, fmt.Errorf("the simulation's process ended by itself (%w); what it said last is in %s", cmp.Or(ended, io.ErrUnexpectedEOF), dump.Name())
	case last.Error != "":
		return *last.Result, errors.Join(errors.New(strings.ReplaceAll(last.Error, "\n", "; ")), os.Remove(dump.Name()))
	}
	return *last.Result, os.Remove(dump.Name())
}

// listen passes the process's words on until it ends.
func listen(out io.Reader, words chan<- word) {
	defer close(words)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var w word
		if json.Unmarshal(lines.Bytes(), &w) == nil {
			words <- w
		}
	}
}

// watch hears the process out to its last word. The error is why it has to be ended instead:
// virtual time can't measure that it stands still.
func (o *Options) watch(ctx context.Context, words <-chan word) (last word, err error) {
	within, still := cmp.Or(o.Within, usualWithin), cmp.Or(o.Still, usualStill)
	all, quiet := time.NewTimer(within), time.NewTimer(still)
	defer all.Stop()
	defer quiet.Stop()
	var at time.Duration
	var told time.Time
	stuck := func(what string) error {
		return fmt.Errorf("the simulation was ended: %s; what each of its goroutines waited for is in %s", what, filepath.Join(o.Dir, dumpFile))
	}
	for {
		select {
		case w, ok := <-words:
			if !ok {
				return last, nil
			}
			if w.At > at || w.Say != "" || w.Result != nil {
				quiet.Reset(still)
			}
			at = max(at, w.At)
			if last.Result == nil {
				last = w
			}
			if o.Say != nil && (w.Say != "" || time.Since(told) > progress) {
				told = time.Now()
				o.Say(strings.TrimSpace(fmt.Sprintf("virtual time %s  %s", at.Round(time.Second), w.Say)))
			}
		case <-quiet.C:
			return last, stuck(fmt.Sprintf("virtual time has stood still for %s, %s after its begin", regions.Span(still), regions.Span(at)))
		case <-all.C:
			return last, stuck(fmt.Sprintf("it has not ended within %s; virtual time is %s after its begin", regions.Span(within), regions.Span(at)))
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}

// end ends the process; if it has to explain itself it first says where each of its
// goroutines is.
func end(cmd *exec.Cmd, words <-chan word, explain bool) {
	if explain {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // an error: it has ended
		kill := time.AfterFunc(dying, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
	} else {
		_ = cmd.Process.Kill()
	}
	for range words { //nolint:revive // until it has ended
	}
}
