package inject

// State and Refresh let a test make the refreshes that keep makes one after another.
type State = state

func (p *Plugin) Refresh(seen State) State { return p.refresh(seen) }
