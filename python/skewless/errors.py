"""Every error Skewless raises, one class a cause, so that a caller can catch what it can mend.

Each message reads: what went wrong, the detail, and what to do. The JVM side throws one exception class with
a code; the gateway turns the code into the class of the same name here.
"""


class SkewlessError(Exception):
    """The base of all errors of Skewless."""


class TableError(SkewlessError):
    """A table that cannot be built or read: a key where a hash belongs, a target out of range, a duplicate
    hash, damaged bytes."""


class SettingError(SkewlessError):
    """A setting or an argument that is unknown, of the wrong type, or out of its range."""


class VersionError(SkewlessError):
    """Spark, the jar or a file is of a version that this release does not serve."""


class SessionError(SkewlessError):
    """There is no Spark session, or it lacks a part of Skewless (jar, plugin, extension), or is a Spark
    Connect session."""


class ColumnError(SkewlessError):
    """A key column that is not there, or of a type that Spark cannot hash."""


class JoinError(SkewlessError):
    """A join that `skewless.join` does not do: one without an equality of both sides, or of streams."""


class AggregateError(SkewlessError):
    """An aggregate that cannot be done: a function gives something else than its schema says, a merge
    contradicts itself, or a stream asks for what it cannot have."""


class MergeError(AggregateError):
    """A merge whose outcome depends on how rows are cut or in which order partials come."""


class WindowError(SkewlessError):
    """A window that `skewless.window` does not do: a function or a frame that cannot be cut into ranges, or
    a stream."""


class QueryError(SkewlessError):
    """A streaming query that cannot take what was asked of it: stopped, stateful, or not routed."""


class NotYetError(QueryError):
    """A query that cannot take what was asked of it now, but may with its next batch: ask again then."""


class CheckpointError(SkewlessError):
    """A file of Skewless under a query's checkpoint is missing, damaged, cannot be written, or contradicts
    another."""


class PolicyError(SkewlessError):
    """A policy was given, or gave, something that is not a valid plan."""


class ForecastError(SkewlessError):
    """A forecast that cannot be made: its extra is not installed, its training failed, or its saved weights
    are
    damaged or of another version."""
