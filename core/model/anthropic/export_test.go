package anthropic

import (
	"io"
	"net/http"

	"github.com/layover-run/layover/core/model"
)

// Read turns the body of an answer into parts, as Stream does once the answer's
// head is in. A body that ends too early is a readError.
func (m *Model) Read(body io.Reader, emit func(model.Part) error) error {
	return (&stream{m: m, header: http.Header{}, emit: emit}).read(body)
}
