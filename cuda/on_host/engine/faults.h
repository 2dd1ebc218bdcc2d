// Faults of the processor that are mistakes in the use of device memory.
#ifndef SOK_CUDA_ON_HOST_ENGINE_FAULTS_H_
#define SOK_CUDA_ON_HOST_ENGINE_FAULTS_H_

namespace sok::on_host {

// From now on a fault at an address of device memory, or below the stack of a CUDA thread, is a report. Other
// faults go where they went before.
void ReportFaults();

// Gives the calling thread a stack for the report of a stack that is full.
void PrepareForFaults();

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_FAULTS_H_
