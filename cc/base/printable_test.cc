#include "cc/base/printable.h"

#include <gtest/gtest.h>

namespace sok {
namespace {

TEST(PrintableTest, PlainTextStays) {
  for (const char* text :
       {"", "plain 'text' \\ with \"quotes\"", "größer, 大きい, \xf0\x9f\x98\x80", "~ !"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, ControlCharactersOfTerminalsAreEscaped) {
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\x1b[2J\r\n\t\x7f"), "\\x1b[2J\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");  // a control sequence in one character
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b"),
            "a\\xe2\\x80\\xaeb");  // right to left
  EXPECT_EQ(Printable("\xe2\x80\xa8\xef\xbb\xbf"), "\\xe2\\x80\\xa8\\xef\\xbb\\xbf");
  EXPECT_EQ(Printable("\xe0\xa3\xa2"), "\\xe0\\xa3\\xa2");  // the invisible U+08E2
}

TEST(PrintableTest, InvalidUtf8IsEscaped) {
  EXPECT_EQ(Printable("\xff"
                      "a\xc3"),
            "\\xffa\\xc3");
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong encoding
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a lone surrogate
  EXPECT_EQ(Printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");  // above U+10FFFF
  EXPECT_EQ(Printable("\xe2\x82z\x80"), "\\xe2\\x82z\\x80");
}

}  // namespace
}  // namespace sok
