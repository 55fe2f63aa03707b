package profile_test

import (
	"fmt"

	"github.com/clairun/clai-sandbox/profile"
)

// The configuration and what one run asks for become a profile, in which each grant says where it
// is from.
func ExampleResolve() {
	caller := profile.Caller{UID: 1000, Home: "/home/me", User: "me", WorkingDirectory: "/home/me/work", Environ: []string{"PATH=/usr/bin:/bin"}}
	config, err := profile.Load(profile.Directories{Config: "/home/me/.config/clai-sandbox"}) // what is not there says nothing
	if err != nil {
		panic(err)
	}
	p, err := profile.Resolve(config, caller, profile.Request{Grants: []string{"~/data:ro"}, Network: "disabled", NoProject: true})
	if err != nil {
		panic(err)
	}
	for _, g := range p.Grants {
		fmt.Println(g.Path, g.Access, g.Origin)
	}
	// Output:
	// /home/me read_only default
	// /home/me/work read_write workspace
	// /home/me/data read_only flag --grant ~/data:ro
}
