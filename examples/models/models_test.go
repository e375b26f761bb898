package models_test

import (
	"strings"
	"testing"

	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/examples/models"
	"github.com/layover-run/layover/examples/weather"
)

func env(pairs ...string) func(string) string {
	values := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }
}

func TestFromEnv(t *testing.T) {
	for _, tc := range []struct {
		env            func(string) string
		provider, name string
	}{
		{env(), "demo", "demo-1"},
		{env("ANTHROPIC_MODEL", "claude-x"), "demo", "demo-1"},
		{env("ANTHROPIC_API_KEY", "k"), "anthropic", anthropic.DefaultModel},
		{env("ANTHROPIC_API_KEY", "k", "ANTHROPIC_MODEL", "claude-x", "ANTHROPIC_BASE_URL", "http://127.0.0.1:1"), "anthropic", "claude-x"},
	} {
		m, err := models.FromEnv(tc.env)
		if err != nil {
			t.Fatal(err)
		}
		if provider, name := m.(model.Named).Identity(); provider != tc.provider || name != tc.name {
			t.Errorf("%s %s, want %s %s", provider, name, tc.provider, tc.name)
		}
	}
	bindings, err := models.Bind(env(), weather.Agent())
	if err != nil || len(bindings) != 1 || bindings[0].Engine().Model == nil {
		t.Error(bindings, err)
	}
}

// failure: A36
func TestWrongEnvironmentKeepsTheKeyToItself(t *testing.T) {
	const canary = "sk-canary-4711"
	for _, e := range []func(string) string{
		env("ANTHROPIC_API_KEY", canary+"\n"),
		env("ANTHROPIC_API_KEY", canary, "ANTHROPIC_BASE_URL", "ftp://"+canary+"@x"),
		env("ANTHROPIC_API_KEY", canary, "ANTHROPIC_BASE_URL", "://"+canary),
	} {
		if _, err := models.Bind(e, weather.Agent()); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%v", err)
		}
	}
}
