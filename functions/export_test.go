package functions

import (
	"maps"
	"slices"
)

// Routes is every method and path of the API.
func Routes() []string { return slices.Sorted(maps.Keys((&api{}).routes())) }
