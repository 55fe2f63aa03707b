package policy

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
)

func init() {
	caseTests["env_policy"] = tryEnvPolicy
	caseTests["env_sanitize"] = tryEnvSanitize
}

func tryEnvPolicy(t *trial) outcome {
	var in struct {
		Key          string
		ShellWrapper bool
	}
	t.into(t.Input, &in)
	if strings.HasPrefix(in.Key, "ProgramFiles(") && t.Rule != "env_shell_wrapper" {
		return skipped("windows")
	}
	switch t.Rule {
	case "env_override":
		var want struct {
			Accepted                         bool
			RejectedBlocked, RejectedInvalid []string
		}
		t.into(t.Expect, &want)
		err := checkOverrides(map[string]string{in.Key: "x"})
		if (err == nil) != want.Accepted {
			return judge(err == nil, want.Accepted, "environment")
		}
		return sameRejections(err, want.RejectedBlocked, want.RejectedInvalid)
	case "env_inherit":
		var want struct{ Inherited bool }
		t.into(t.Expect, &want)
		_, got := Environment(map[string]string{in.Key: "x"}, nil, false)[in.Key]
		return judge(got, want.Inherited, "environment")
	case "env_shell_wrapper":
		var want struct{ Kept bool }
		t.into(t.Expect, &want)
		return judge(keepOverride(in.Key, in.ShellWrapper), want.Kept, "environment")
	}
	return wrong("the rule %s is not known", t.Rule)
}

func sameRejections(err error, blocked, invalid []string) outcome {
	var e EnvironmentError
	if rejected := (*EnvironmentError)(nil); errors.As(err, &rejected) {
		e = *rejected
	}
	if !slices.Equal(e.Blocked, blocked) || !slices.Equal(trimmed(e.Invalid), trimmed(invalid)) {
		return wrong("%+v", e)
	}
	return equal
}

func trimmed(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.TrimSpace(s)
	}
	return out
}

func tryEnvSanitize(t *trial) outcome {
	var in struct {
		BaseEnv   map[string]any
		Overrides map[string]string
	}
	var want struct {
		Env                                                      map[string]string
		RejectedOverrideBlockedKeys, RejectedOverrideInvalidKeys []string
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	base := map[string]string{}
	for name, value := range in.BaseEnv {
		if text, ok := value.(string); ok {
			base[name] = text
		}
	}
	if _, ok := in.Overrides["ProgramFiles(x86)"]; ok {
		return skipped("windows")
	}
	got := Environment(base, in.Overrides, false)
	// The marker is each project's own.
	delete(got, MarkerVariable)
	delete(want.Env, "OPENCLAW_CLI")
	if !maps.Equal(got, want.Env) {
		for name, value := range got {
			if want.Env[name] != value {
				return looser("%s=%s", name, value)
			}
		}
		return stricter("environment")
	}
	var raw map[string]json.RawMessage
	t.into(t.Expect, &raw)
	if raw["rejectedOverrideBlockedKeys"] == nil {
		return equal
	}
	return sameRejections(checkOverrides(in.Overrides), want.RejectedOverrideBlockedKeys, want.RejectedOverrideInvalidKeys)
}
