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

// What is not said is left to the layers below, and what was said stays until more is said of it.
func TestWhatIsNotSaidStaysAsItIs(t *testing.T) {
	has := func(w Preference) [4]bool {
		return [4]bool{w.Host != nil, w.Security != nil, w.Ask != nil, w.Node != ""}
	}
	words := [4]Overrides{{Host: "gateway"}, {Security: "full"}, {Ask: "off"}, {Node: "n"}}
	all := Overrides{Host: "node", Security: "deny", Ask: "always", Node: "old", Elevated: true}
	for i, said := range words {
		if got, want := has(said.Preference()), [4]bool{0: i == 0, 1: i == 1, 2: i == 2, 3: i == 3}; got != want {
			t.Errorf("%+v: %v", said, said.Preference())
		}
		want := all
		switch i {
		case 0:
			want.Host = "gateway"
		case 1:
			want.Security = "full"
		case 2:
			want.Ask = "off"
		case 3:
			want.Node = "n"
		}
		if got := all.With(said); got != want {
			t.Errorf("%+v, and then %+v: %+v", all, said, got)
		}
		if got := (Overrides{}).With(said); got != said {
			t.Errorf("%+v: %+v", said, got)
		}
	}
	if got := all.With(Overrides{}); got != all {
		t.Errorf("%+v", got)
	}
	w := Overrides{Host: "gateway", Security: "full", Ask: "off"}.Preference()
	if *w.Host != HostGateway || *w.Security != SecurityFull || *w.Ask != AskOff {
		t.Errorf("%v %v %v", *w.Host, *w.Security, *w.Ask)
	}
}
