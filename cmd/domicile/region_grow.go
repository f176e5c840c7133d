package main

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/identity"
)

const growExample = "  domicile region grow -c old/node.yaml --federation new/federation.yaml --to a=new/a/data --to b=new/b/data --to c=new/c/data"

func (a *app) regionGrow() *cobra.Command {
	var from, manifest string
	var to map[string]string
	cmd := &cobra.Command{
		Use: "grow", Short: "Make three nodes of a region of one",
		Long: `Fills the data directories of a region's three new nodes from its one old store.
All of them lie on this machine meanwhile; each is taken to its node's own machine
afterwards, before any of the three is started. The new federation.yaml says already
which three gateways the region has.`,
		Example: growExample,
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := regions.LoadManifest(manifest)
			if err != nil {
				return err
			}
			old, err := node.LoadConfig(from) // not held against the manifest, which tells of the new nodes
			if err != nil {
				return err
			}
			source := storeOf(old, f)
			stores, err := storesOf(source, f, to, a.now())
			if err != nil {
				return err
			}
			return a.move(cmd.Context(), source, stores, func([]string) string { return nextAfterGrow(source.Region, to) })
		},
	}
	cmd.Flags().StringVarP(&from, "config", "c", "", "path of the old node's node.yaml")
	cmd.Flags().StringVar(&manifest, "federation", "", "path of the new federation.yaml")
	cmd.Flags().StringToStringVar(&to, "to", nil, "GATEWAY=DIR, once for each of the three: its empty or absent data directory")
	return needs(cmd, "config", "federation", "to")
}

// storesOf are the new nodes' stores as they run in this process, where only they can
// reach each other: with certificates that are made for this run and kept nowhere.
func storesOf(old fabric.Config, f *regions.Federation, dirs map[string]string, now time.Time) ([]fabric.Config, error) {
	r, _ := f.Region(old.Region)
	names := slices.Sorted(maps.Keys(dirs))
	if want := slices.Sorted(maps.Keys(r.Gateways)); len(want) == 0 || !slices.Equal(names, want) {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "grow region", Region: old.Region, Field: "to", Value: strings.Join(names, ", "),
			Hint: fmt.Sprintf("name the region's three gateways as the new federation.yaml does: it has %v", want)}
	}
	ca, err := identity.NewCA(f.Name(), now, 24*time.Hour)
	if err != nil {
		return nil, err
	}
	members := map[string]string{}
	for _, name := range names {
		if members[name], err = freeAddress(); err != nil {
			return nil, err
		}
	}
	var stores []fabric.Config
	for _, name := range names {
		cert, key, err := ca.Issue(identity.Region, old.Region, now, 24*time.Hour)
		if err != nil {
			return nil, err
		}
		id, err := identity.New(cert, key, ca.CertPEM(), regions.NewSteadyClock())
		if err != nil {
			return nil, err
		}
		s := old
		s.Dir = dirs[name]
		s.Cluster = &fabric.Cluster{Node: name, Members: members, Listen: members[name], TLS: id.SiblingTLS()}
		stores = append(stores, s)
	}
	return stores, nil
}

// freeAddress is a loopback address that nothing listens at. Its port lies below those
// that the kernel gives to connections.
func freeAddress() (string, error) {
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000)))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", errors.New("no free port on loopback")
}

func nextAfterGrow(region string, dirs map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Next:\n  1. Give every region the new federation.yaml: %s has three gateways in it.\n", region)
	b.WriteString("  2. Take each directory to its node's machine, as data of its node.yaml, and leave no second copy:\n")
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		fmt.Fprintf(&b, "       %s  %s\n", name, quote(dirs[name]))
	}
	b.WriteString("  3. Start the three.")
	return b.String()
}
