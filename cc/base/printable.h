#ifndef SOK_CC_BASE_PRINTABLE_H_
#define SOK_CC_BASE_PRINTABLE_H_

#include <string>
#include <string_view>

namespace sok {

// Makes arbitrary bytes safe to print as one line of UTF-8. Control characters, line separators, most
// invisible characters, those that change the text direction, and bytes that are not UTF-8 become "\xNN", one
// for each byte. Everything else stays as it is.
std::string Printable(std::string_view text);

}  // namespace sok

#endif  // SOK_CC_BASE_PRINTABLE_H_
