package profile

import (
	"strings"
	"testing"
)

func TestToolsAndHostExecAreReadByLayer(t *testing.T) {
	config, err := load(t, "", `{
		"defaults": {"execution": {"tools": {"deny": ["exec"]}, "hostexec": {"autoApprove": ["make"]}, "outside": {"security": "allowlist", "ask": "always"}}},
		"agents": {"main": {"execution": {"tools": {"profile": "coding", "allow": []}, "sandbox": {"tools": {"alsoAllow": ["x"]}}, "hostexec": {"autoApprove": ["ls"], "manualApprove": ["git .*"]},
			"outside": {"ask": "off"}}}}
	}`)
	if err != nil {
		t.Fatal(err)
	}
	global, own, sandboxGlobal, sandboxOwn := config.Tools("main")
	if len(global.Deny) != 1 || global.Allow != nil || !strings.Contains(global.Place, "config.json:2") || own.Profile != "coding" || own.Allow == nil || len(own.Allow) != 0 ||
		sandboxGlobal.AlsoAllow != nil || len(sandboxOwn.AlsoAllow) != 1 {
		t.Errorf("%+v %+v %+v %+v", global, own, sandboxGlobal, sandboxOwn)
	}
	all, one := config.HostExec("main")
	if len(all.AutoApprove) != 1 || all.AutoApprove[0] != "make" || one.AutoApprove[0] != "ls" || one.ManualApprove[0] != "git .*" {
		t.Errorf("%+v %+v", all, one)
	}
	if outsideAll, outsideOne := config.OutsideLayers("main"); outsideAll.Ask != "always" || outsideOne.Ask != "off" || outsideOne.Security != "" {
		t.Errorf("%+v %+v", outsideAll, outsideOne)
	}
	if joined, err := config.Outside("main"); err != nil || joined.Ask != "off" || joined.Security != "allowlist" {
		t.Errorf("%+v, %v", joined, err)
	}
}

func TestAnExpressionThatDoesNotCompileIsAnErrorAtItsPlace(t *testing.T) {
	for _, expression := range []string{"(", "a)|(b", "[", "(?<x", "a{2000}", strings.Repeat("a", 1025)} {
		_, err := load(t, "", "{\"defaults\": {\"execution\": {\"hostexec\": {\"manualApprove\": [\"ok\",\n  \""+expression+"\"]}}}}")
		if err == nil || !strings.Contains(err.Error(), "config.json:2:3") {
			t.Errorf("%.20s: %v", expression, err)
		}
	}
}

func TestANameOfAToolIsOne(t *testing.T) {
	for _, name := range []string{"", "a b", "a\\u001b", strings.Repeat("a", 65), "/x"} {
		if _, err := load(t, "", `{"defaults": {"execution": {"tools": {"deny": ["`+name+`"]}}}}`); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
}
