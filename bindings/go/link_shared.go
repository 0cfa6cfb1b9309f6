//go:build dormouse_shared

package dormouse

// #cgo pkg-config: dormouse
import "C"
