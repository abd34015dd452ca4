package io.skewless.observe

import scala.collection.mutable

/**
 * Lets loops wait for batches that are committed or shown. Each loop hears of all of them, whoever else has:
 * several sessions of one application have a loop each. Thread-safe.
 */
final class News {
  private var count = 0L
  private val heard = mutable.HashMap.empty[String, Long]

  def add(): Unit = synchronized {
    count += 1
    notifyAll()
  }

  /**
   * Waits until there is something that this loop has not heard of, or for so many milliseconds: whether
   * there is.
   */
  def await(loop: String, millis: Long): Boolean = synchronized {
    if (isHeard(loop) && millis > 0) wait(millis)
    val isNews = !isHeard(loop)
    heard(loop) = count
    isNews
  }

  private def isHeard(loop: String): Boolean = heard.getOrElse(loop, 0L) == count

  def forget(loop: String): Unit = synchronized { heard.remove(loop); () }
}
