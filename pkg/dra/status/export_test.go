package status

// Len is the number of claims whose report is owed: not sent, under way, or waiting
// for another try.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.owed)
}
