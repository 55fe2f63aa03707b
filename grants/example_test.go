package grants_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// A decision may be narrower than the question, and never wider.
func ExampleRules_Decide() {
	home, err := os.MkdirTemp("/var/tmp", "clai-sandbox-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(home)
	plans := filepath.Join(home, "plans")
	os.MkdirAll(filepath.Join(plans, "2027"), 0o755)
	os.Mkdir(filepath.Join(home, "other"), 0o755)

	rules := grants.NewRules(home, nil, nil)
	question, err := rules.Ask(plans, profile.ReadWrite, "to read the plan")
	if err != nil {
		panic(err)
	}
	for _, d := range []grants.Decision{
		{Kind: grants.AllowOnce, Path: filepath.Join(plans, "2027"), Access: profile.ReadOnly},
		{Kind: grants.AllowOnce, Path: filepath.Join(home, "other"), Access: profile.ReadOnly},
	} {
		place, err := rules.Decide(question, d)
		name, _ := filepath.Rel(home, place.Resolved)
		fmt.Printf("%q, refused: %v\n", name, err != nil)
	}
	// Output:
	// "plans/2027", refused: false
	// "", refused: true
}
