package dra

import "context"

// Survey looks at the node as for its slices.
func Survey(a *Agent) { a.ownSlices(context.Background(), true) }
