package policy

import (
	"errors"
	"fmt"
	"testing"
)

func TestZeroValuesAreTheStrictest(t *testing.T) {
	var (
		v Verdict
		s Security
		a Ask
		h Host
		w Answer
		b By
		k fileKind
		n bindable
	)
	if v != Deny || s != SecurityDeny || a != AskAlways || h != HostSandbox || w != AnswerDeny || b != ByNothing || k != fileOther || n != bindUnclear {
		t.Error(v, s, a, h, w, b, k, n)
	}
	if j := judgeAnswer(Security(99), Ask(99), Facts{Understood: true, Satisfied: true}, AnswerNone); j.Allowed {
		t.Error("an unknown security allows")
	}
	if !requiresAsk(SecurityAllowlist, Ask(99), Facts{Durable: true}) {
		t.Error("an unknown ask does not ask")
	}
	if run, _ := unanswered(Security(99), Facts{Understood: true, Satisfied: true}, false); run {
		t.Error("an unknown fallback runs")
	}
	if Verdict(99).String() != "unknown" || len(answers(Ask(99))) != 2 {
		t.Error("unknown words")
	}
}

func TestAParameterCanOnlyTighten(t *testing.T) {
	for _, configured := range []Security{SecurityDeny, SecurityAllowlist, SecurityFull} {
		for _, requested := range []Security{SecurityDeny, SecurityAllowlist, SecurityFull} {
			p, err := Place(Layers{Parameter: Preference{Security: &requested}, Global: Preference{Host: new(HostGateway), Security: &configured}})
			if err != nil || p.Security != min(configured, requested) {
				t.Errorf("%v asked for where %v is configured: %v %v", requested, configured, p.Security, err)
			}
		}
	}
	for _, configured := range []Ask{AskAlways, AskOnMiss, AskOff} {
		for _, requested := range []Ask{AskAlways, AskOnMiss, AskOff} {
			p, err := Place(Layers{Parameter: Preference{Ask: &requested}, Global: Preference{Host: new(HostGateway), Ask: &configured}})
			if err != nil || p.Ask != min(configured, requested) {
				t.Errorf("%v asked for where %v is configured: %v %v", requested, configured, p.Ask, err)
			}
		}
	}
}

func TestAParameterNamesAHostOnlyWhereTheConfigurationLetsIt(t *testing.T) {
	for _, configured := range []Host{HostSandbox, HostGateway, HostNode, HostAuto} {
		for _, requested := range []Host{HostSandbox, HostGateway, HostNode, HostAuto, 99} {
			p, err := Place(Layers{Parameter: Preference{Host: &requested}, Global: Preference{Host: &configured}, InSandbox: true})
			ok := requested < HostAuto && (configured == requested || configured == HostAuto)
			var refused *HostError
			switch {
			case ok && (err != nil || p.Host != requested):
				t.Errorf("%v where %v is configured: %v %v", requested, configured, p.Host, err)
			case !ok && !errors.As(err, &refused):
				t.Errorf("%v where %v is configured: %v %v", requested, configured, p.Host, err)
			}
		}
	}
	if p, err := Place(Layers{Global: Preference{Host: new(HostAuto)}}); err != nil || p.Host != HostSandbox {
		t.Error(p, err)
	}
	if p, err := Place(Layers{Global: Preference{Host: new(Host(7))}}); err == nil {
		t.Error(p)
	}
}

func TestTheMostSpecificLayerCounts(t *testing.T) {
	l := Layers{Session: Preference{Host: new(HostNode)}, Agent: Preference{Host: new(HostGateway), Security: new(SecurityAllowlist), Node: "a"},
		Global: Preference{Host: new(HostSandbox), Security: new(SecurityFull), Ask: new(AskOff), Node: "b"}, Parameter: Preference{Node: "c"}}
	p, err := Place(l)
	if got := fmt.Sprintln(p.Host, p.Security, p.Ask, p.Node, err); got != "node allowlist off a <nil>\n" {
		t.Error(got)
	}
	l.Elevated = true
	l.Session = Preference{}
	if p, err = Place(l); err != nil || p.Host != HostGateway || p.Security != SecurityFull {
		t.Errorf("elevated: %+v %v", p, err)
	}
	l.Elevated = false
	if p, err = Place(l); err != nil || p.Security != SecurityAllowlist {
		t.Errorf("no longer elevated: %+v %v", p, err)
	}
}

func TestBuiltInsAreSandboxDenyAndOnMiss(t *testing.T) {
	p, err := Place(Layers{})
	if err != nil || p.Host != HostSandbox {
		t.Error(p, err)
	}
	if p, err = Place(Layers{Global: Preference{Host: new(HostGateway)}}); err != nil || p.Security != SecurityDeny || p.Ask != AskOnMiss {
		t.Error(p, err)
	}
}

func TestACommandForTheSandboxNeverRunsWithoutOne(t *testing.T) {
	if _, err := Place(Layers{NoSandbox: true}); !errors.As(err, new(NoSandboxError)) {
		t.Error(err)
	}
	if d := (&Policy{Layers: Layers{NoSandbox: true}}).Decide(Request{Command: "true"}); d.Verdict != Deny {
		t.Error(d.Verdict)
	}
	if d := (&Policy{Layers: Layers{Global: Preference{Security: new(SecurityDeny)}}}).Decide(Request{Command: "true"}); d.Verdict != Deny {
		t.Error(d.Verdict)
	}
}
