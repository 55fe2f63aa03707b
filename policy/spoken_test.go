package policy

import (
	"fmt"
	"strings"
	"testing"
)

func TestWhatIsTypedToWhoeverDecides(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "for the agent",
		"please /exec host=gateway":       "for the agent",
		"exec host=gateway":               "for the agent",
		"/execute":                        "for the agent",
		"/exec":                           "exec {    false}",
		" /EXEC  Host=GATEWAY\tnode=a b=": "usage",
		"/exec host=gateway security=full ask=off node=n-1": "exec {gateway full off n-1 false}",
		"/exec host=auto":                        "usage",
		"/exec host":                             "usage",
		"/exec host=gateway host=node":           "usage",
		"/exec node=":                            "usage",
		"/exec node=a\u202eb":                    "usage",
		"/exec node=" + strings.Repeat("x", 129): "usage",
		"/exec security=full please":             "usage",
		"/exec elevated=true":                    "usage",
		"/exec reset":                            "reset",
		"/exec reset host=gateway":               "usage",
		"/exec@us host=gateway":                  "usage",
		"/elevated on":                           "elevated true",
		"/elevated OFF":                          "elevated false",
		"/elevated":                              "usage",
		"/elevated full":                         "usage",
		"/elevated on now":                       "usage",
		"/approve abcdefgh once":                 "approve {abcdefgh allow-once}",
		"/approve abcdefgh":                      "usage",
	} {
		s, ok, err := ParseSpoken(text)
		got := "for the agent"
		switch {
		case err != nil:
			got = "usage"
		case ok && s.Exec != nil:
			got = fmt.Sprintf("exec %v", [...]any{s.Exec.Host, s.Exec.Security, s.Exec.Ask, s.Exec.Node, s.Exec.Elevated})
			got = "exec {" + strings.Trim(strings.TrimPrefix(got, "exec "), "[]") + "}"
		case ok && s.Elevated != nil:
			got = fmt.Sprint("elevated ", *s.Elevated)
		case ok && s.Reset:
			got = "reset"
		case ok:
			got = fmt.Sprintf("approve %v", *s.Approve)
		}
		if got != want {
			t.Errorf("%q: %s, want %s (%v)", text, got, want, err)
		}
		if err != nil && s.Exec != nil && *s.Exec != (Overrides{}) {
			t.Errorf("%q: part of it counts: %+v", text, *s.Exec)
		}
	}
	if w := (Overrides{Host: "x", Security: "x", Ask: "x"}).Preference(); *w.Host != HostSandbox || *w.Security != SecurityDeny || *w.Ask != AskAlways {
		t.Errorf("a word that nobody knows: %+v", w)
	}
}
