package crash_test

type standIn struct{ main func() }

var standIns = map[string]standIn{}
