package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/gateway/node"
	"domicile/policy"
	"domicile/policy/opa"
	"domicile/regions"
	"domicile/regions/identity"
)

func (a *app) configCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "config", Short: "Check the files that a node reads, and have it read them again",
		Example: "  domicile config check -c ./federation/eu-west/node.yaml",
	}
	group.AddCommand(a.configCheck(), a.configReload())
	return group
}

func (a *app) configCheck() *cobra.Command {
	var nodeFile, manifest string
	var dev bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check node.yaml and all it names, or a federation.yaml alone",
		Long:    "Reads what serve would read, judges the whole policy, and starts nothing.",
		Example: "  domicile config check -c ./federation/eu-west/node.yaml\n  domicile config check --federation ./federation/federation.yaml",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var r checkReport
			var err error
			switch {
			case (nodeFile == "") == (manifest == ""):
				return usage("config check needs one of -c node.yaml and --federation federation.yaml")
			case nodeFile != "":
				r, err = a.checkNode(cmd.Context(), nodeFile, dev)
			default:
				r, err = checkManifest(manifest)
			}
			if err != nil {
				return checkFailed{err}
			}
			return a.printCheck(r)
		},
	}
	cmd.Flags().StringVarP(&nodeFile, "config", "c", "", "path of node.yaml")
	cmd.Flags().StringVar(&manifest, "federation", "", "path of federation.yaml")
	cmd.Flags().BoolVar(&dev, "dev", false, "as serve --dev would read it")
	return cmd
}

// checkReport is what a check that passed found.
type checkReport struct {
	Federation string   `json:"federation"`
	Manifest   string   `json:"manifest_digest"`
	Regions    []string `json:"regions"`
	Topics     []string `json:"topics"`
	Region     string   `json:"region,omitempty"`
	Policy     string   `json:"policy_revision,omitempty"`
	Cells      int      `json:"policy_cells,omitempty"`
	DaysLeft   *float64 `json:"certificate_days_left,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`
}

func checkManifest(path string) (checkReport, error) {
	f, err := regions.LoadManifest(path)
	if err != nil {
		return checkReport{}, err
	}
	return reportOf(f), nil
}

func reportOf(f *regions.Federation) checkReport {
	return checkReport{Federation: f.Name(), Manifest: f.Digest(), Regions: f.Regions(), Topics: f.Topics(), Warnings: f.Cautions()}
}

// checkNode reads what serve reads: both files, the certificate and the policy.
func (a *app) checkNode(ctx context.Context, path string, dev bool) (checkReport, error) {
	c, f, err := loadNode(path, dev)
	if err != nil {
		return checkReport{}, err
	}
	r := reportOf(f)
	r.Region = c.Region
	days, err := checkCertificate(c, f)
	if err != nil {
		return r, err
	}
	r.DaysLeft = &days
	if days < 30 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the node's certificate ends in %.0f days", days))
	}
	if c.Witness(f) {
		return r, nil // it has neither door nor policy
	}
	if len(c.Principals) == 0 && !dev {
		r.Warnings = append(r.Warnings, "principals is empty: nobody is let in at the door")
	}
	p, err := opa.Load(ctx, c.Policies, f)
	if err != nil {
		return r, err
	}
	if err := checkClasses(c, f, p.Generation); err != nil {
		return r, err
	}
	r.Policy, r.Cells = p.Report.Revision, p.Report.Cells
	r.Warnings = append(r.Warnings, p.Report.Warnings...)
	return r, nil
}

// checkClasses refuses a principal whose class the catalog does not know: each of
// its records would be denied, and nothing else would say why.
func checkClasses(c node.Config, f *regions.Federation, g *policy.Generation) error {
	if len(f.Topics()) == 0 {
		return nil
	}
	topic := f.Topics()[0]
	combination := g.Combinations(topic)[0] // a topic without one is refused at load
	tags, err := api.ParseTagString(combination)
	if err != nil {
		return err
	}
	ask := func(field, class string) error {
		_, err := g.Ask(policy.Question{Point: policy.Admit, Topic: topic, Tags: tags, Class: class, Origin: c.Region})
		if api.CodeOf(err) != api.BadRequest {
			return err
		}
		return &api.Error{Code: api.ConfigInvalid, Op: "check node config", Field: field, Value: class, Hint: "not one of the catalog's principal_classes; " + hintOf(err)}
	}
	for i, p := range c.Principals {
		if err := ask(fmt.Sprintf("principals[%d].class", i), p.Class); err != nil {
			return err
		}
	}
	return ask("dev_class", c.DevClass)
}

// loadNode reads and checks node.yaml and the manifest it names.
func loadNode(path string, dev bool) (node.Config, *regions.Federation, error) {
	c, err := node.LoadConfig(path)
	if err != nil {
		return c, nil, err
	}
	f, err := regions.LoadManifest(c.Federation)
	if err != nil {
		return c, nil, err
	}
	return c, f, c.Validate(f, dev)
}

// checkCertificate checks the node's certificate as its peers will, and returns the
// days it has left.
func checkCertificate(c node.Config, f *regions.Federation) (float64, error) {
	files := identity.Files{Cert: c.TLS.Certificate, Key: c.TLS.Key, CA: c.TLS.CA}
	id, err := identity.Load(files, regions.NewSteadyClock())
	if err != nil {
		return 0, err
	}
	if name := id.Name(); name.Federation != f.Name() {
		return 0, &api.Error{Code: api.ConfigInvalid, Op: "check certificate", Field: "tls.certificate", Value: name.String(),
			Hint: "federation.yaml says federation: " + f.Name() + "; sign one for it"}
	}
	pair, err := tls.LoadX509KeyPair(c.TLS.Certificate, c.TLS.Key)
	if err != nil {
		return 0, err
	}
	if _, err := id.Verify(tls.ConnectionState{PeerCertificates: chain(pair)}, c.Region, identity.Region); err != nil {
		return 0, err
	}
	return id.DaysLeft(), nil
}

func (a *app) printCheck(r checkReport) error {
	if a.json() {
		return a.printJSON(r)
	}
	rows := [][]string{{"federation", r.Federation}, {"manifest", r.Manifest}, {"regions", strings.Join(r.Regions, ", ")}, {"topics", strings.Join(r.Topics, ", ")}}
	if r.Region != "" {
		rows = append(rows, []string{"this region", r.Region},
			[]string{"certificate", fmt.Sprintf("%.0f days left", *r.DaysLeft)},
			[]string{"policy", fmt.Sprintf("%s, %s questions judged", r.Policy, count(r.Cells))})
	}
	for _, w := range r.Warnings {
		rows = append(rows, []string{"warning", w})
	}
	table(a.out, "", rows)
	_, err := fmt.Fprintln(a.out, "ok")
	return err
}
