// Package docs holds the documents that a program serves.
package docs

import _ "embed"

// OpenAPI describes the HTTP API; a test holds it against the server.
//
//go:embed openapi.json
var OpenAPI []byte
