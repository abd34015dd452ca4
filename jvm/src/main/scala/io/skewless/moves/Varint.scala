package io.skewless.moves

import java.io.DataOutputStream
import java.nio.ByteBuffer

/** Whole numbers as protobuf writes them: seven bits per byte, the last one with its top bit clear. */
object Varint {
  def write(out: DataOutputStream, value: Int): Unit = {
    var rest = value
    while ((rest & ~0x7f) != 0) {
      out.write((rest & 0x7f) | 0x80)
      rest >>>= 7
    }
    out.write(rest)
  }

  def read(buffer: ByteBuffer): Int = {
    var result = 0
    var shift = 0
    var byte = buffer.get()
    while (byte < 0) {
      result |= (byte & 0x7f) << shift
      shift += 7
      byte = buffer.get()
    }
    result | (byte << shift)
  }
}
