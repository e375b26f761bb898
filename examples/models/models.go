// Package models picks the model that the examples run on: a provider's where
// the environment has its key, and else the demo model, which needs none.
package models

import (
	"github.com/layover-run/layover/core/agent"
	"github.com/layover-run/layover/core/model"
	"github.com/layover-run/layover/core/model/anthropic"
	"github.com/layover-run/layover/core/model/demo"
)

// FromEnv is Anthropic with ANTHROPIC_API_KEY, and the demo model without. Its
// error says what is wrong with the environment.
func FromEnv(getenv func(string) string) (model.Model, error) {
	m, err := anthropic.FromEnv(getenv)
	if m == nil || err != nil {
		return demo.New(), err
	}
	return m, nil
}

// Bind binds agents to the model of the environment.
func Bind(getenv func(string) string, agents ...*agent.Definition) ([]*agent.Binding, error) {
	m, err := FromEnv(getenv)
	if err != nil {
		return nil, err
	}
	bindings := make([]*agent.Binding, len(agents))
	for i, a := range agents {
		bindings[i] = a.Bind(m)
	}
	return bindings, nil
}
