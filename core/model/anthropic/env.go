package anthropic

import (
	sdk "github.com/anthropics/anthropic-sdk-go"
)

// DefaultModel is what FromEnv asks where no model is named.
const DefaultModel = string(sdk.ModelClaudeSonnet5_5)

// FromEnv makes a model from the environment: ANTHROPIC_API_KEY is the key,
// ANTHROPIC_MODEL the model's name, which defaults to DefaultModel, and
// ANTHROPIC_BASE_URL the address, which defaults to the provider's own. Without
// a key it is nil, without an error.
func FromEnv(getenv func(string) string) (*Model, error) {
	c := Config{APIKey: getenv("ANTHROPIC_API_KEY"), Model: getenv("ANTHROPIC_MODEL"), BaseURL: getenv("ANTHROPIC_BASE_URL")}
	if c.APIKey == "" {
		return nil, nil
	}
	if c.Model == "" {
		c.Model = DefaultModel
	}
	return New(c)
}
