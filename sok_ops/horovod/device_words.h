#ifndef SOK_SOK_OPS_HOROVOD_DEVICE_WORDS_H_
#define SOK_SOK_OPS_HOROVOD_DEVICE_WORDS_H_

namespace sok {

// Whether Horovod's alltoall reads and writes GPU memory, and ends only when the received words are there. It
// does if Horovod was built with GPU operations. Otherwise exchanges go through host memory.
bool HorovodTakesDeviceMemory();

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_DEVICE_WORDS_H_
