package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"domicile/regions"
)

// versionInfo is what this binary is.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	Wire     int    `json:"wire_version"`
}

func version() versionInfo {
	v := versionInfo{Version: "devel", Revision: "unknown", Wire: regions.WireVersion}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  domicile version -o json",
		Args: arguments(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			v := version()
			if a.json() {
				return a.printJSON(v)
			}
			_, err := fmt.Fprintf(a.out, "domicile %s, revision %s, %s, link protocol %d\n", v.Version, v.Revision, v.Go, v.Wire)
			return err
		},
	}
}
