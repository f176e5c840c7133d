package link

// CouncilAccepts reports whether somebody takes the council's connections.
func (m *Mesh) CouncilAccepts() bool { return m.accepting[Council].accepts() }
