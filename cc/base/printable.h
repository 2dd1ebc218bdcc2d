#ifndef SOK_CC_BASE_PRINTABLE_H_
#define SOK_CC_BASE_PRINTABLE_H_

#include <string>
#include <string_view>

namespace sok {

// A text that may hold anything, as one that is safe to print: one line of UTF-8 that moves no cursor.
// Control characters, line separators, characters that turn the direction of writing or cannot be seen, and
// bytes that are no UTF-8 become "\xNN", one for each byte. All else is as it was.
std::string Printable(std::string_view text);

}  // namespace sok

#endif  // SOK_CC_BASE_PRINTABLE_H_
