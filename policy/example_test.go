package policy_test

import (
	"fmt"

	"github.com/clairun/clai-sandbox/policy"
)

// A line is taken apart, and each of its programs has to be allowed. What is executed is built anew
// from what was understood.
func ExamplePolicy_Decide() {
	approvals, err := policy.ParseApprovals([]byte(`{"version": 1, "agents": {"main": {"allowlist": [{"pattern": "/usr/bin/id"}]}}}`))
	if err != nil {
		panic(err)
	}
	gateway, allowlist, onMiss := policy.HostGateway, policy.SecurityAllowlist, policy.AskOnMiss
	p := &policy.Policy{
		Machine:   policy.NewMachine("/usr/bin:/bin", "/home/me"),
		Approvals: approvals,
		Layers:    policy.Layers{Global: policy.Preference{Host: &gateway, Security: &allowlist, Ask: &onMiss, Source: "an example"}},
	}
	for _, line := range []string{"id", "id; whoami", "id $(whoami)"} {
		d := p.Decide(policy.Request{Command: line, Cwd: "/", Agent: "main"})
		fmt.Printf("%s: %v\n", line, d.Verdict)
	}
	// Output:
	// id: run
	// id; whoami: ask
	// id $(whoami): ask
}
