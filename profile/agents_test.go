package profile

import (
	"errors"
	"strings"
	"testing"
)

func TestAnAgentThatNoConfigurationHasIsRefusedWithTheNearestName(t *testing.T) {
	config := &Config{layers: []configFile{
		{Agents: map[string]agentConfig{"reviewer": {}}},
		{Agents: map[string]agentConfig{"builder": {}, "x": {}}},
	}}
	for _, name := range []string{"", DefaultAgent, "reviewer", "builder", "x"} {
		if err := config.CheckConfigured(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, nearest := range map[string]string{"reviwer": "reviewer", "Reviewer": "reviewer", "reviewer2": "reviewer", "bulider": "builder", "mian": "main", "man": "main",
		"y": "", "something-else": ""} {
		err := config.CheckConfigured(name)
		var unknown *AgentError
		if !errors.As(err, &unknown) || unknown.Nearest != nearest || !strings.Contains(err.Error(), name) || unknown.Hint() == "" {
			t.Errorf("%q: %v, want %q as the nearest", name, err, nearest)
		}
	}
	if err := (&Config{}).CheckConfigured("anybody"); err == nil {
		t.Error("without any configuration, any name is an agent")
	}
	if err := config.CheckConfigured("../x"); err == nil || errors.As(err, new(*AgentError)) {
		t.Errorf("what is no name: %v", err)
	}
}
