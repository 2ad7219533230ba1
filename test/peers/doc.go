// Package peers tests with programs and libraries of other projects: the reference plugins, cnitool, Multus, and its
// reader of device-info files.
package peers
