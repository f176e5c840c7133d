package regions

// Shares divides a bound among classes, such as the topics that have records on their way to
// one region. A class may hold at most twice what it leaves free, so one that takes all it can
// get leaves a third, several divide the bound, and one that holds nothing is let in as
// long as there is room at all. It is not safe for concurrent use.
type Shares struct {
	most, held int
	by         map[string]int
}

// NewShares is a bound of most, whatever is counted, of which nothing is held.
func NewShares(most int) *Shares { return &Shares{most: most, by: map[string]int{}} }

// Room reports whether a class may take n more.
func (s *Shares) Room(class string, n int) bool {
	own, free := s.by[class], s.most-s.held-n
	return s.held == 0 || free >= 0 && (own == 0 || own+n <= 2*free)
}

// Take counts n for a class, whether there is room or not.
func (s *Shares) Take(class string, n int) {
	s.held += n
	s.by[class] += n
}

// Back counts n of a class no more.
func (s *Shares) Back(class string, n int) {
	s.held -= n
	if s.by[class] -= n; s.by[class] == 0 {
		delete(s.by, class)
	}
}

// Held is what all classes hold together.
func (s *Shares) Held() int { return s.held }

// Turns is a queue that serves its classes in turn, each in the order in which its values
// came: what one class has waiting is no wait for another. The zero value is empty and
// ready. It has no bound of its own, and is not safe for concurrent use.
type Turns[T any] struct {
	waiting map[string][]T
	order   []string // of the classes that have something waiting
	n       int
}

// Push adds a value to its class.
func (q *Turns[T]) Push(class string, v T) {
	if q.waiting == nil {
		q.waiting = map[string][]T{}
	}
	if len(q.waiting[class]) == 0 {
		q.order = append(q.order, class)
	}
	q.waiting[class] = append(q.waiting[class], v)
	q.n++
}

// Next is the value that Pop takes; false if there is none.
func (q *Turns[T]) Next() (v T, ok bool) {
	if len(q.order) == 0 {
		return v, false
	}
	return q.waiting[q.order[0]][0], true
}

// Pop takes the next value, and it is the next class's turn; false if there is none.
func (q *Turns[T]) Pop() (v T, ok bool) {
	if v, ok = q.Next(); !ok {
		return v, false
	}
	class := q.order[0]
	rest := q.waiting[class]
	clear(rest[:1]) // the array outlives the value
	q.order, q.n = q.order[1:], q.n-1
	if rest = rest[1:]; len(rest) > 0 {
		q.waiting[class] = rest
		q.order = append(q.order, class)
	} else {
		delete(q.waiting, class)
	}
	return v, true
}

// Len is how many values wait.
func (q *Turns[T]) Len() int { return q.n }

// Drop takes out every value of which gone is true.
func (q *Turns[T]) Drop(gone func(T) bool) {
	var kept Turns[T]
	for _, class := range q.order {
		for _, v := range q.waiting[class] {
			if !gone(v) {
				kept.Push(class, v)
			}
		}
	}
	*q = kept
}
