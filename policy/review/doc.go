// Package review is what people hold a policy against: the residency matrix and the
// fixtures that they wrote, the difference between two policies, and what was really
// asked. It works on decisions alone and knows no policy language.
package review
