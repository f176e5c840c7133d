package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api/client"
	pb "domicile/api/domicile/v1"
)

func (a *app) policyActivate() *cobra.Command {
	return &cobra.Command{
		Use: "activate BUNDLE", Short: "Put a signed policy in force, here and in every region that can be reached",
		Long: `The node verifies the signatures by the keys of its own node.yaml, judges every question
and runs the tests, keeps the exact bytes, flips in one step, and hands the bundle to the
other nodes of its region and to the regions it has a link with; each verifies it by its own keys. When the command ends with 0,
nothing that an older policy let through leaves or enters any of them. It ends with 3 and
names the nodes and regions that have not confirmed: those get it before records pass again. What is
refused changes nothing.`,
		Example: "  domicile policy activate policy-7.bundle --context eu-west",
		Args:    arguments(1, 1, "a BUNDLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, data, err := readBundle(args[0])
			if err != nil {
				return err
			}
			return a.activate(cmd.Context(), data)
		},
	}
}

func (a *app) activate(ctx context.Context, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, reloadWithin)
	defer cancel()
	c, err := a.dial(toAdmin)
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := c.ActivatePolicy(ctx, &pb.ActivatePolicyRequest{Bundle: data})
	if err != nil {
		return err
	}
	if a.json() {
		err = a.printJSON(viewActivation(r))
	} else {
		_, err = io.WriteString(a.out, renderActivation(r))
	}
	if err == nil && !confirmed(r.GetFences()) {
		return ended(exitDegraded)
	}
	return err
}

func confirmed(fences []*pb.PolicyFence) bool {
	for _, f := range fences {
		if !f.GetConfirmed() {
			return false
		}
	}
	return true
}

type fenceView struct {
	Region    string `json:"region"`
	Gateway   string `json:"gateway,omitempty"` // another node of the region that was asked; left out: the whole region
	Confirmed bool   `json:"confirmed"`
	Serial    int64  `json:"serial"` // 0: not known
	Why       string `json:"why,omitempty"`
}

type activationView struct {
	Changed  bool           `json:"changed"`
	Revision string         `json:"revision"`
	Previous string         `json:"previous"`
	Cells    uint64         `json:"cells"`
	Tests    uint64         `json:"tests"`
	Warnings []string       `json:"warnings,omitempty"`
	Policy   *signedView    `json:"policy"`
	Fences   []fenceView    `json:"fences"`
	Narrowed []narrowedView `json:"narrowed"`
}

// narrowedView is where records lie that could not come there any more.
type narrowedView struct {
	Log     string   `json:"log"`
	Region  string   `json:"region"`
	Tags    []string `json:"tags"`
	Known   bool     `json:"known"` // what the log holds; it is known in its own region only
	Records uint64   `json:"records"`
	Bytes   uint64   `json:"bytes"`
}

func viewNarrowed(logs []*pb.NarrowedLog) []narrowedView {
	out := []narrowedView{}
	for _, l := range logs {
		out = append(out, narrowedView{logName(l.GetLog()), l.GetRegion(), l.GetTags(), l.GetKnown(), l.GetRecords(), l.GetBytes()})
	}
	return out
}

func renderNarrowed(b *strings.Builder, logs []*pb.NarrowedLog) {
	if len(logs) == 0 {
		return
	}
	b.WriteString("records of these may lie where they may rest no longer; nothing is taken out:\n")
	rows := [][]string{{"LOG", "IN", "HOLDS IN ALL", "TAGS"}}
	for _, l := range viewNarrowed(logs) {
		holds := "unknown here"
		if l.Known {
			holds = count(l.Records) + " records"
		}
		rows = append(rows, []string{l.Log, l.Region, holds, strings.Join(l.Tags, "; ")})
	}
	table(b, "  ", rows)
}

type signedView struct {
	Serial     int64     `json:"serial"`
	Digest     string    `json:"digest"`
	ValidFrom  time.Time `json:"valid_from"`
	ValidUntil time.Time `json:"valid_until"`
	BackTo     int64     `json:"rolls_back_to,omitempty"`
	Revokes    []string  `json:"revokes,omitempty"`
	SignedBy   []string  `json:"signed_by"`
	MinEngine  string    `json:"min_engine"`
}

func viewSigned(p *pb.SignedPolicy) *signedView {
	if p == nil {
		return nil
	}
	return &signedView{p.GetSerial(), p.GetDigest(), time.Unix(0, p.GetValidFromUnixNano()).UTC(), time.Unix(0, p.GetValidUntilUnixNano()).UTC(),
		p.GetRollsBackTo(), p.GetRevokes(), p.GetSignedBy(), p.GetMinEngine()}
}

func viewFences(fences []*pb.PolicyFence) []fenceView {
	out := []fenceView{}
	for _, f := range fences {
		out = append(out, fenceView{f.GetRegion(), f.GetGateway(), f.GetConfirmed(), f.GetSerial(), f.GetWhy()})
	}
	return out
}

func viewActivation(r *pb.ActivatePolicyResponse) activationView {
	return activationView{r.GetChanged(), r.GetRevision(), r.GetPrevious(), r.GetCells(), r.GetTests(), r.GetWarnings(), viewSigned(r.GetPolicy()), viewFences(r.GetFences()), viewNarrowed(r.GetNarrowed())}
}

func renderActivation(r *pb.ActivatePolicyResponse) string {
	var b strings.Builder
	if r.GetChanged() {
		fmt.Fprintf(&b, "%s is active now, before it %s; %s questions judged, %d tests passed\n", r.GetRevision(), firstOf(r.GetPrevious(), "none"), count(r.GetCells()), r.GetTests())
	} else {
		fmt.Fprintf(&b, "%s was active already\n", r.GetRevision())
	}
	renderSigned(&b, r.GetPolicy())
	renderFences(&b, r.GetFences())
	renderNarrowed(&b, r.GetNarrowed())
	for _, w := range r.GetWarnings() {
		fmt.Fprintln(&b, "warning:", w)
	}
	return b.String()
}

func renderSigned(b *strings.Builder, p *pb.SignedPolicy) {
	v := viewSigned(p)
	fmt.Fprintf(b, "serial %d, signed by %s, valid until %s\n", v.Serial, strings.Join(v.SignedBy, ", "), v.ValidUntil.Format(time.RFC3339))
	if v.BackTo > 0 {
		fmt.Fprintf(b, "it has the files of serial %d\n", v.BackTo)
	}
	if len(v.Revokes) > 0 {
		fmt.Fprintln(b, "revoked:", strings.Join(v.Revokes, ", "))
	}
}

func renderFences(b *strings.Builder, fences []*pb.PolicyFence) {
	for _, f := range fences {
		name, means := f.GetRegion(), "nothing older leaves or enters it"
		if f.GetGateway() != "" {
			name, means = f.GetRegion()+"/"+f.GetGateway(), "it judges by nothing older"
		}
		if f.GetConfirmed() {
			fmt.Fprintf(b, "%s has confirmed: %s\n", name, means)
		} else {
			fmt.Fprintf(b, "%s has NOT confirmed: %s\n", name, f.GetWhy())
		}
	}
}

func (a *app) policyState(ctx context.Context) (*pb.PolicyStatusResponse, error) {
	c, err := a.dial(toAdmin)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, client.DefaultPatience)
	defer cancel()
	r, err := c.PolicyStatus(ctx)
	return r, asked(err)
}

type policyStatusView struct {
	Revision   string      `json:"revision"`
	Serial     int64       `json:"serial"`
	SignedOnly bool        `json:"signed_only"`
	Policy     *signedView `json:"policy"`
	Lapsed     bool        `json:"lapsed"`
	Problem    string      `json:"problem,omitempty"`
	Kept       []int64     `json:"kept"`
	Fences     []fenceView `json:"fences"`
	Warnings   []string    `json:"warnings,omitempty"`
}

func (a *app) policyStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show which policy is active, who signed it, and where it is confirmed",
		Long:    "Ends with 3 when no policy is active, when its time is over, or when a region that can be asked has not confirmed it.",
		Example: "  domicile policy status --context eu-west",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.policyState(cmd.Context())
			if err != nil {
				return err
			}
			if a.json() {
				kept := append([]int64{}, r.GetKept()...)
				err = a.printJSON(policyStatusView{r.GetRevision(), r.GetSerial(), r.GetSignedOnly(), viewSigned(r.GetPolicy()), r.GetLapsed(), r.GetProblem(), kept, viewFences(r.GetFences()), r.GetWarnings()})
			} else {
				_, err = io.WriteString(a.out, renderPolicyStatus(r))
			}
			if err == nil && (r.GetRevision() == "" || r.GetLapsed() || !confirmed(r.GetFences())) {
				return ended(exitDegraded)
			}
			return err
		},
	}
}

func renderPolicyStatus(r *pb.PolicyStatusResponse) string {
	var b strings.Builder
	switch {
	case r.GetRevision() == "":
		b.WriteString("no policy is active: every record is refused\n")
	case r.GetLapsed():
		fmt.Fprintf(&b, "%s is active, and its time is over: nothing crosses a border\n", r.GetRevision())
	default:
		fmt.Fprintf(&b, "%s is active\n", r.GetRevision())
	}
	if r.GetPolicy() != nil {
		renderSigned(&b, r.GetPolicy())
	} else if !r.GetSignedOnly() {
		b.WriteString("it was loaded from the policy directory; nobody is asked to sign\n")
	}
	renderFences(&b, r.GetFences())
	if r.GetProblem() != "" {
		fmt.Fprintln(&b, "refused last:", oneLine(r.GetProblem()))
	}
	for _, w := range r.GetWarnings() {
		fmt.Fprintln(&b, "warning:", w)
	}
	return b.String()
}
