// The engine that a test program is linked with.
#ifndef SOK_CC_ENGINE_CONTRACT_ENGINE_OF_TESTS_H_
#define SOK_CC_ENGINE_CONTRACT_ENGINE_OF_TESTS_H_

#include "cc/engine/contract/engine_case.h"

namespace sok {

// Tests that every engine has to pass call this. A test program links one library that defines it, such as
// //cc/engine/contract:cpu_engine_of_tests.
const EngineCase& EngineOfTests();

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_ENGINE_OF_TESTS_H_
