package io.skewless

/**
 * The one exception Skewless throws on purpose. `code` is the name of the Python class that the gateway
 * raises for it (see `errors.py`); the message reads: what went wrong, the detail, what to do.
 */
final class SkewlessException(val code: String, message: String, cause: Throwable = null)
    extends RuntimeException(message, cause) {
  def getCode: String = code
}

object SkewlessException {

  /** What to do about a session without the extension. */
  val SetExtension: String =
    "Set spark.sql.extensions=org.apache.spark.sql.skewless.SkewlessExtensions before the " +
      "session starts, or build it with skewless.configure(builder)"

  def table(message: String): SkewlessException = new SkewlessException("TableError", message)
  def setting(message: String): SkewlessException = new SkewlessException("SettingError", message)
  def version(message: String): SkewlessException = new SkewlessException("VersionError", message)
  def session(message: String): SkewlessException = new SkewlessException("SessionError", message)
  def column(message: String): SkewlessException = new SkewlessException("ColumnError", message)
  def query(message: String): SkewlessException = new SkewlessException("QueryError", message)

  /** A refusal that may pass with the query's next batch. */
  def notYet(message: String): SkewlessException = new SkewlessException("NotYetError", message)
  def checkpoint(message: String, cause: Throwable = null): SkewlessException =
    new SkewlessException("CheckpointError", message, cause)
}
