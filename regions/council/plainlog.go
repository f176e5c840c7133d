package council

import (
	"bytes"
	"context"
	"log/slog"
)

// plainLog hands the voters' protocol's own lines to the node's log.
type plainLog struct{ log *slog.Logger }

// Write takes one line.
func (p *plainLog) Write(line []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(line, []byte("[ERROR]")) {
		level = slog.LevelWarn
	}
	p.log.Log(context.Background(), level, "council", "line", string(bytes.TrimSpace(line)))
	return len(line), nil
}
